"use strict";
// Pictures that a reader chooses: models and their Pareto front, batteries over time, the map of the fleet.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const node = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    if (text) made.textContent = text;
    return made;
  };
  const titled = (made, text) => { made.append(node("title", {}, text)); return made; };
  const amount = (value, kind) => {
    const ladder = data.ladders[kind];
    const [symbol, scale] = [...ladder].reverse().find(([name, size]) => Math.abs(value) >= (data.from[name] || size)) || ladder[0];
    return `${Number((value / scale).toPrecision(3))} ${symbol}`;
  };
  // Axes with five labels each; returns the functions from figures to places.
  const axes = (svg, box, across, up) => {
    const x = (value) => box.left + (box.right - box.left) * (value - across.from) / (across.to - across.from || 1);
    const y = (value) => box.bottom - (box.bottom - box.top) * (value - up.from) / (up.to - up.from || 1);
    for (let part = 0; part <= 4; part += 1) {
      const [value, level] = [across, up].map((of) => of.from + (of.to - of.from) * part / 4);
      svg.append(node("line", { x1: box.left, x2: box.right, y1: y(level), y2: y(level), stroke: "var(--line)" }));
      svg.append(node("text", { x: box.left - 6, y: y(level) + 4, "text-anchor": "end" }, up.words(level)));
      if (part % 2 === 0) svg.append(node("text", { x: x(value), y: box.bottom + 18, "text-anchor": part ? part === 4 ? "end" : "middle" : "start" }, across.words(value)));
    }
    return { x, y };
  };
  const canvas = (place, ratio, label) => {
    const width = Math.max(280, Math.min(700, place.clientWidth));
    const height = Math.round(width * ratio);
    const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
    return { svg, width, height, box: { left: 56, right: width - 8, top: 10, bottom: height - 26 } };
  };
  const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const keys = (names) => {
    const line = document.createElement("p");
    line.className = "note";
    names.forEach((name, at) => {
      const mark = document.createElement("span");
      mark.className = "key";
      mark.style.background = `var(--m${at % 7})`;
      line.append(mark, `${name} `);
    });
    return line;
  };
  const redraw = [];

  const share = data.metric.share;
  const said = (value) => (share ? `${Number((100 * value).toFixed(1))} %` : `${Number(value.toPrecision(3))}`);
  document.querySelectorAll(".front-picture").forEach((place) => redraw.push(() => {
    const kind = place.dataset.kind;
    const sign = data.metric.higher ? 1 : -1;
    const lines = data.held.map((seeds, series) => {
      const count = Math.min(...seeds.map((seed) => seed.value.length));
      return Array.from({ length: count }, (_, at) => ({
        series,
        cost: seeds.reduce((sum, seed) => sum + seed[kind][at], 0) / seeds.length,
        value: seeds.reduce((sum, seed) => sum + seed.value[at], 0) / seeds.length,
      }));
    });
    const every = lines.flat().sort((one, other) => one.cost - other.cost || sign * (other.value - one.value));
    if (!every.length) return;
    const front = every.reduce((best, each) => (!best.length || sign * each.value > sign * best[best.length - 1].value ? [...best, each] : best), []);
    const values = every.map((each) => each.value);
    const { svg, box } = canvas(place, 0.6, `Pareto front over ${kind}`);
    const { x, y } = axes(svg, box, { from: 0, to: Math.max(...every.map((each) => each.cost)), words: (value) => (value ? amount(value, kind) : "0") },
      { from: Math.min(...values), to: Math.max(...values), words: said });
    lines.forEach((points, series) => svg.append(titled(node("path", { d: path(points.map((each) => [x(each.cost), y(each.value)])), fill: "none", stroke: `var(--m${series % 7})`, opacity: 0.45 }), data.names[series])));
    const steps = front.flatMap((each, at) => (at ? [[x(each.cost), y(front[at - 1].value)]] : []).concat([[x(each.cost), y(each.value)]]));
    svg.append(node("path", { d: path(steps), fill: "none", stroke: "var(--ink)", "stroke-width": 1 }));
    front.forEach((each) => svg.append(titled(node("circle", { cx: x(each.cost), cy: y(each.value), r: 3.5, fill: `var(--m${each.series % 7})` }), `${data.names[each.series]}: ${said(each.value)} for ${amount(each.cost, kind)}`)));
    place.replaceChildren(svg, keys(data.names));
  }));

  const chosen = (name, draw) => {
    const place = document.getElementById(`${name}-picture`);
    if (!place) return;
    const methods = JSON.parse(document.getElementById(`${name}-data`).textContent);
    const select = document.getElementById(`${name}-method`);
    methods.forEach((each, at) => select.add(new Option(each.name, at)));
    const show = () => draw(place, methods[select.value]);
    select.addEventListener("change", show);
    redraw.push(show);
  };
  chosen("batteries", (place, of) => {
    const { svg, box } = canvas(place, 0.55, `Batteries of ${of.name}`);
    const kinds = [...new Set(of.lines.map(([, device]) => device))];
    const { x, y } = axes(svg, box, { from: 0, to: of.ended, words: (value) => (value ? amount(value, "seconds") : "0") }, { from: 0, to: 1, words: (value) => `${Math.round(100 * value)} %` });
    of.lines.forEach(([client, device, points]) => svg.append(titled(
      node("path", { d: path(points.map(([time, left]) => [x(time), y(left)])), fill: "none", stroke: `var(--m${kinds.indexOf(device) % 7})`, opacity: 0.7 }),
      `client ${client}, ${device}: ${(100 * points[points.length - 1][1]).toFixed(0)} % at the end`)));
    place.replaceChildren(svg, keys(kinds));
  });
  chosen("map", (place, of) => {
    const { svg, width, height } = canvas(place, 0.85, `Map of the fleet of ${of.name}`);
    const client = (name) => name.startsWith("client/");
    const hubs = [...new Set(of.links.flatMap(([one, other]) => [one, other]).filter((name) => !client(name)))];
    const below = Object.fromEntries(hubs.map((name) => [name, []]));
    of.links.forEach(([one, other]) => { if (client(one) !== client(other)) below[client(one) ? other : one].push(client(one) ? one : other); });
    const neighbours = (name, kind) => of.links.filter(([one, other]) => (one === name && kind(other)) || (other === name && kind(one))).length;
    const hub = (name) => !client(name);
    const centre = [...hubs].sort((one, other) => neighbours(other, hub) - neighbours(one, hub) || below[other].length - below[one].length)[0];
    const places = { [centre]: [0, 0] };
    const loaded = hubs.filter((name) => name !== centre && below[name].length);
    const others = hubs.filter((name) => name !== centre && !below[name].length);
    const turn = (2 * Math.PI) / Math.max(1, loaded.length);
    const around = (names, far, from) => names.forEach((name, at) => {
      const angle = from + (2 * Math.PI * at) / names.length - Math.PI / 2;
      places[name] = [far * Math.cos(angle), far * Math.sin(angle)];
    });
    around(loaded, 0.42, 0);
    around(others, 0.22, 1.5 * Math.PI + 0.35);
    const spread = (names, from, size) => {
      const rings = Math.max(1, Math.ceil(names.length / Math.max(4, (70 * size) / (2 * Math.PI))));
      names.forEach((name, at) => {
        const angle = from + (size * (at + 0.5)) / names.length;
        const far = 0.92 - (0.42 * (at % rings)) / Math.max(2, rings);
        places[name] = [far * Math.cos(angle), far * Math.sin(angle)];
      });
    };
    if (below[centre]) spread(below[centre], -Math.PI / 2, 2 * Math.PI);
    loaded.forEach((name, at) => spread(below[name], (at - 0.45) * turn - Math.PI / 2, 0.9 * turn));
    Object.keys(of.clients).filter((name) => !places[name]).forEach((name, at, all) => spread(all, 0, 2 * Math.PI));
    const at = (name) => [width / 2 + places[name][0] * (width / 2 - 12), height / 2 + places[name][1] * (height / 2 - 12)];
    const heaviest = Math.max(...of.links.map(([, , there, back]) => there + back));
    of.links.forEach(([one, other, there, back, load]) => {
      const [[x1, y1], [x2, y2]] = [at(one), at(other)];
      const part = load === null ? (there + back) / heaviest : Math.min(1, load);
      svg.append(titled(node("line", { x1, y1, x2, y2, stroke: "var(--accent)", "stroke-width": (0.7 + 7 * part).toFixed(2), opacity: (0.25 + 0.7 * part).toFixed(2) }),
        `${one} – ${other}: ${amount(there, "bytes")} and ${amount(back, "bytes")} back${load === null ? "" : `, ${(100 * load).toPrecision(2)} % of its capacity`}`));
    });
    const most = Math.max(1, ...Object.values(of.clients).map(([, closed]) => closed));
    Object.entries(of.clients).forEach(([name, [device, closed, joined]]) => {
      const [cx, cy] = at(name);
      svg.append(titled(node("circle", { cx, cy, r: (3 + 7 * Math.sqrt(closed / most)).toFixed(1), fill: closed ? "var(--m1)" : "var(--quiet)", stroke: "var(--card)" }),
        `${name.replace("/", " ")}, ${device}: closed ${closed} of ${of.rounds} rounds, its update was used in ${joined}`));
    });
    hubs.forEach((name) => {
      const [x, y] = at(name);
      svg.append(node("rect", { x: x - 5, y: y - 5, width: 10, height: 10, fill: "var(--ink)", stroke: "var(--card)" }));
      const left = places[name][0] < -0.05;
      svg.append(node("text", { x: x + (left ? -9 : 9), y: y + 4, "text-anchor": left ? "end" : "start", stroke: "var(--card)", "stroke-width": 3, "paint-order": "stroke" }, name));
    });
    place.replaceChildren(svg);
  });
  const all = () => redraw.forEach((each) => each());
  window.addEventListener("resize", all);
  document.querySelectorAll("details").forEach((each) => each.addEventListener("toggle", all));
  all();
})();
