"use strict";
// A round as a Gantt chart: a row for each client, a bar for each transfer, computation and framework's time.
(() => {
  const place = document.getElementById("gantt-chart");
  if (!place) return;
  const { gantt: methods, kinds } = JSON.parse(document.getElementById("gantt-data").textContent);
  const [method, slider, words] = ["method", "round", "words"].map((name) => document.getElementById(`gantt-${name}`));
  const node = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.textContent = text;
    return made;
  };
  const PREFETCH = kinds.indexOf("prefetch for the next round");
  const time = (seconds) => (seconds < 1 ? `${(1000 * seconds).toPrecision(3)} ms` : seconds < 7200 ? `${seconds.toPrecision(3)} s` : `${(seconds / 3600).toPrecision(3)} h`);
  const draw = () => {
    const of = methods[method.value];
    slider.max = of.rounds.length - 1;
    const shown = of.rounds[Math.min(slider.value, slider.max)];
    const who = shown.closed < 0 ? "its deadline" : `client ${shown.closed}`;
    words.textContent = `round ${shown.round} of ${of.of}: ${time(shown.seconds)}, closed by ${who}`;
    slider.setAttribute("aria-valuetext", words.textContent);
    const ahead = (bars) => bars.every(([kind]) => kind === PREFETCH);
    const last = (bars) => Math.max(...bars.map(([, , end]) => end));
    const rows = Object.entries(shown.rows).sort(([, one], [, other]) => ahead(one) - ahead(other) || last(one) - last(other));
    const kept = [...rows.filter(([, bars]) => !ahead(bars)).slice(-60), ...rows.filter(([, bars]) => ahead(bars)).slice(0, 20)];
    const width = Math.max(280, place.clientWidth), left = width < 500 ? 78 : 190, high = 19;
    const svg = node("svg", { viewBox: `0 0 ${width} ${high * kept.length + 22}`, role: "img", "aria-label": `Gantt chart of ${words.textContent}` });
    kept.forEach(([name, bars], row) => {
      const label = left < 100 || !of.devices[name] ? name : `${name}, ${of.devices[name]}`;
      svg.append(node("text", { x: 0, y: high * row + 14, "font-weight": name === `client ${shown.closed}` ? 700 : 400 }, label));
      bars.forEach(([kind, start, end, whole]) => {
        const [at, size] = [left + (width - left - 4) * start / 10000, Math.max(1, (width - left - 4) * (end - start) / 10000)];
        const bar = node("rect", { x: at.toFixed(1), y: high * row + 2, width: size.toFixed(1), height: kind === PREFETCH ? 6 : high - 4, class: kinds[kind].split(" ")[0], opacity: whole ? 1 : 0.45 });
        bar.append(node("title", {}, `${name}, ${of.devices[name] || ""}: ${kinds[kind]}${whole ? "" : ", aborted"}, ${time(shown.seconds * (end - start) / 10000)}`));
        svg.append(bar);
      });
    });
    (width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).forEach((part) => {
      svg.append(node("text", { x: left + (width - left - 4) * part, y: high * kept.length + 16, "text-anchor": part === 1 ? "end" : part ? "middle" : "start" }, part ? time(shown.seconds * part) : "0"));
    });
    place.replaceChildren(svg);
  };
  methods.forEach((each, at) => method.add(new Option(each.name, at)));
  const longest = () => {
    const rounds = methods[method.value].rounds;
    slider.max = rounds.length - 1;
    slider.value = rounds.reduce((best, each, at) => (each.seconds > rounds[best].seconds ? at : best), 0);
    draw();
  };
  method.addEventListener("change", longest);
  slider.addEventListener("input", draw);
  window.addEventListener("resize", draw);
  longest();
})();
