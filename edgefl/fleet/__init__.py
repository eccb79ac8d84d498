"""Device profiles: what a kind of device computes, stores, draws and sends."""
