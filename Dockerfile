FROM python:3.12-slim
RUN python -m pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu
COPY . /opt/edgefl
RUN python -m pip install --no-cache-dir /opt/edgefl
ENV HOME=/tmp MPLCONFIGDIR=/tmp
WORKDIR /work
ENTRYPOINT ["edgefl"]
