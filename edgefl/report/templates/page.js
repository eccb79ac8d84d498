"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const byId = (name) => document.getElementById(name);
  const chosen = (name) => (document.querySelector(`input[name="${name}"]:checked`) || {}).value;
  // Avoid line breaks between a number and its sign or unit.
  const together = (words) => words.replace(/ ± /g, "\u00a0±\u00a0").replace(/ \[/g, "\u00a0[").replace(/([\d\]]) (?=(%|[kMGTP]?(B|J|s|FLOP|min|h|days)\b))/g, "$1\u00a0");
  const escaped = (words) => String(words).replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  const names = data.names.map(escaped);

  // Okabe and Ito's colours, lighter on dark backgrounds; line dashes and markers distinguish methods without colour.
  const COLOURS = {
    light: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#33383f", "#56B4E9", "#E69F00"],
    dark: ["#4DA6E0", "#FF8A4C", "#2FC49B", "#E6A0C8", "#E4E7EB", "#9AD4F7", "#F6BC48"],
  };
  const SEQUENCE = {
    light: ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725", "#f98e52", "#d8576b"],
    dark: ["#8f6fd0", "#5f86d6", "#2fb3ad", "#7ddc7c", "#fde725", "#f98e52", "#e57f8f"],
  };
  const DASHES = ["solid", "dash", "dashdot", "dot", "longdash"];
  const SIGNS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star"];
  const PATTERNS = ["", "/", ".", "x", "-", "\\", "|"];
  const WORDS = { seconds: "virtual time", bytes: "bytes down and up", flops: "FLOPs", joules: "energy", rounds: "rounds" };
  const dark = () => document.documentElement.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches;
  const colour = (index) => COLOURS[dark() ? "dark" : "light"][index % 7];
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const narrow = () => innerWidth < 640;

  const quantity = (value, kind) => {
    if (kind === "fraction") return `${(100 * value).toFixed(1)} %`;
    if (kind === "rounds" || kind === "number") return `${Number(value.toPrecision(3))}`;
    const ladder = data.ladders[kind];
    const [symbol, scale] = [...ladder].reverse().find(([name, size]) => Math.abs(value) >= (data.from[name] || size)) || ladder[0];
    const number = value / scale;
    const decimals = number === 0 || symbol === "B" ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(number))));
    return `${decimals > 6 ? number.toExponential(1) : number.toFixed(decimals)} ${symbol}`;
  };
  const listed = (words) => words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;

  // Drawing

  const axis = (title, more) => ({
    title: { text: title, standoff: 8 }, gridcolor: ink("grid"), linecolor: ink("line"), zeroline: false, fixedrange: true,
    automargin: true, ...more,
  });
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 11 : 13, color: ink("ink") },
    margin: { l: 52, r: 12, t: 8, b: 44 }, showlegend: true,
    legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom", traceorder: "normal" },
    hoverlabel: { bgcolor: ink("card"), bordercolor: ink("line"), font: { color: ink("ink") } }, ...more,
  });
  const put = (name, traces, more) => {
    const place = byId(name);
    if (!place) return;
    Plotly.react(place, traces, layout(more), { responsive: true, displaylogo: false, displayModeBar: false });
  };
  const axisTitle = (kind) => { const symbol = data.units[kind].symbol; return symbol ? `${WORDS[kind]}, ${symbol}` : WORDS[kind]; };
  const percent = data.metric.share ? 100 : 1;
  const sign = data.metric.share ? " %" : "";
  const digits = data.metric.share ? ".1f" : ".4g";
  const inPercent = (values) => values.map((value) => percent * value);
  const metricTitle = `${data.metric.word}${data.metric.share ? ", %" : ""}`;
  const across = () => data.targets.map((target) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, y0: percent * target, y1: percent * target, layer: "below", line: { color: ink("quiet"), width: 1, dash: "dash" },
  }));

  const drawMetric = () => {
    if (!byId("metric-drawing")) return;
    const kind = chosen("over");
    const { scale } = data.units[kind];
    const traces = [];
    let reach = 0;
    data.curves.forEach((curves, index) => {
      if (!curves[kind]) return;
      const { x, y, low, high } = curves[kind];
      const shown = x.map((value) => value / scale);
      reach = Math.max(reach, shown[shown.length - 1]);
      if (low.some((value, at) => value !== high[at])) {
        traces.push({
          x: [...shown, ...[...shown].reverse()], y: inPercent([...high, ...[...low].reverse()]), fill: "toself", fillcolor: `${colour(index)}26`,
          line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: String(index),
        });
      }
      traces.push({
        x: shown, y: inPercent(y), name: names[index], legendgroup: String(index), mode: "lines+markers",
        line: { color: colour(index), width: 2.4, dash: DASHES[index % 5] },
        marker: { symbol: SIGNS[index % 8], size: 9, color: colour(index), maxdisplayed: 6, line: { color: ink("edge"), width: 1 } },
        hovertemplate: `%{y:${digits}}${sign} at %{x:.4g} ` + data.units[kind].symbol + `<extra>${names[index]}</extra>`,
      });
    });
    const budgets = data.budgets[kind].map((value) => value / scale).filter((value) => value <= 1.25 * reach).map((value) => ({
      type: "line", yref: "paper", x0: value, x1: value, y0: 0, y1: 1, layer: "below", line: { color: ink("quiet"), width: 1.5, dash: "dot" },
    }));
    put("metric-drawing", traces, {
      xaxis: axis(axisTitle(kind), { rangemode: "tozero" }), yaxis: axis(metricTitle), shapes: [...across(), ...budgets],
      annotations: data.targets.map((target) => ({
        xref: "paper", x: 0, xanchor: "left", y: percent * target, yanchor: "bottom", showarrow: false, text: `target ${Number((percent * target).toPrecision(4))}${sign}`,
        font: { size: 11, color: ink("quiet") },
      })),
    });
  };

  const drawFront = () => {
    if (!byId("front-drawing")) return;
    const kind = chosen("cost");
    const { scale } = data.units[kind];
    const { models, front, owner } = data.pareto[kind];
    const traces = [{
      x: front.x.map((value) => value / scale), y: inPercent(front.y), mode: "lines", name: "Pareto front", line: { color: ink("ink"), width: 1.5, shape: "hv" }, hoverinfo: "skip",
    }];
    models.forEach(({ x, y }, index) => {
      const best = new Set(owner.map((series, at) => (series === index ? front.x[at] : null)));
      const size = x.map((value) => (best.has(value) ? 11 : 8));
      traces.push({
        x: x.map((value) => value / scale), y: inPercent(y), mode: "markers", name: names[index],
        marker: { symbol: SIGNS[index % 8], size, color: colour(index), opacity: x.map((value) => (best.has(value) ? 1 : 0.45)), line: { color: ink("edge"), width: 1 } },
        hovertemplate: `round %{pointNumber}: %{y:${digits}}${sign} for %{x:.4g} ` + data.units[kind].symbol + `<extra>${names[index]}</extra>`,
      });
    });
    put("front-drawing", traces, { xaxis: axis(axisTitle(kind), { rangemode: "tozero" }), yaxis: axis(metricTitle), shapes: across() });
  };

  const bars = (name, rows, parts, title, more) => {
    const place = byId(name);
    if (!place) return;
    place.style.height = `${Math.max(13, 1.7 * rows.length + 7.5)}rem`;
    const traces = parts.map(({ words, values, base }, index) => ({
      type: "bar", orientation: "h", y: rows, x: values, name: words,
      marker: { color: base || colour(index), pattern: { shape: PATTERNS[index % 7], fillmode: "overlay", fgcolor: ink("card"), fgopacity: 0.55, size: 8, solidity: 0.2 }, line: { color: ink("edge"), width: 1 } },
      hovertemplate: `%{y}: %{x:.4g}<extra>${words}</extra>`,
    }));
    put(name, traces, { barmode: "stack", bargap: 0.28, xaxis: axis(title, { rangemode: "tozero" }), yaxis: axis("", { autorange: "reversed", gridcolor: "rgba(0,0,0,0)" }), ...more });
  };
  // Rows are keyed by number, because two names may be equal; the ticks show the names.
  const rowAxis = (words) => ({ yaxis: axis("", { autorange: "reversed", gridcolor: "rgba(0,0,0,0)", tickvals: words.map((_, at) => at), ticktext: words }) });

  const drawTraffic = () => {
    const rows = [];
    data.traffic.forEach((each, index) => { if (each) rows.push([`${names[index]} ↓`, each.down], [`${names[index]} ↑`, each.up]); });
    const fates = [...new Set(rows.flatMap(([, found]) => Object.keys(found)))].filter((fate) => fate === "useful" || rows.some(([, found]) => found[fate]));
    const largest = Math.max(1, ...rows.map(([, found]) => Object.values(found).reduce((sum, value) => sum + value, 0)));
    const [symbol, scale] = [...data.ladders.bytes].reverse().find(([, size]) => largest >= size);
    bars("traffic-drawing", rows.map((_, at) => at), fates.map((fate) => ({ words: escaped(fate.replace(/_/g, " ")), values: rows.map(([, found]) => (found[fate] || 0) / scale) })),
      `delivered (↓ down, ↑ up), ${symbol}`, rowAxis(rows.map(([words]) => words)));
  };

  const drawTime = () => {
    const rows = data.phases.map((each, index) => [names[index], each]).filter(([, each]) => each);
    if (!rows.length) return;
    const parts = ["download", "compute", "upload", "waiting", "hidden"].filter((phase) => rows.some(([, each]) => each[phase] > 1e-9));
    bars("time-drawing", rows.map((_, at) => at), parts.map((phase) => ({
      words: phase === "hidden" ? "hidden (before the round)" : phase, values: rows.map(([, each]) => each[phase]),
    })), "seconds per round, mean", rowAxis(rows.map(([words]) => words)));
  };

  const drawClients = () => {
    const picker = byId("clients-method");
    if (!picker) return;
    const { kinds, rows } = data.clients[Number(picker.value)];
    const busy = (row) => row[6] + row[7] + row[8];
    put("clients-drawing", kinds.map((kind, index) => {
      const own = rows.filter((row) => row[2] === index);
      return {
        x: own.map(busy), y: own.map((row) => row[10]), text: own.map((row) => `client ${row[1]}, seed ${row[0]}, ${row[3]} jobs`), mode: "markers", name: escaped(kind),
        marker: { symbol: SIGNS[index % 8], color: colour(index), size: 10, opacity: 0.85, line: { color: ink("edge"), width: 1 } },
        hovertemplate: `%{text}: %{x:.3g} s, %{y:.3g} J<extra>${escaped(kind)}</extra>`,
      };
    }), { xaxis: axis("busy seconds in the run", { rangemode: "tozero" }), yaxis: axis("joules in the run", { rangemode: "tozero" }) });
    if (byId("clients-details").open) fillClients(kinds, rows);
  };
  const fillClients = (kinds, rows) => {
    const table = byId("clients-table");
    table.replaceChildren();
    const line = (parent, tag, cells) => {
      const row = parent.insertRow();
      cells.forEach((words, at) => { const cell = document.createElement(tag); cell.textContent = words; if (at > 2 || at < 2) cell.className = "number"; row.append(cell); });
    };
    line(table.createTHead(), "th", ["seed", "client", "device", "jobs", "down", "up", "download", "compute", "upload", "waiting", "energy"]);
    const body = table.createTBody();
    rows.forEach(([seed, client, kind, jobs, down, up, ...rest]) => line(body, "td", [
      seed, client, kinds[kind], jobs, quantity(down, "bytes"), quantity(up, "bytes"), ...rest.slice(0, 4).map((value) => quantity(value, "seconds")), quantity(rest[4], "joules"),
    ]));
  };

  const drawBlocks = () => {
    const picker = byId("blocks-method");
    if (!picker) return;
    const { rounds, blocks } = data.alphas[Number(picker.value)];
    const shown = Object.keys(blocks).sort((one, other) => one - other);
    put("blocks-drawing", shown.map((alpha, index) => ({
      type: "bar", x: rounds, y: blocks[alpha], name: `α = ${alpha}`,
      marker: { color: SEQUENCE[dark() ? "dark" : "light"][index % 7], pattern: { shape: PATTERNS[index % 7], fillmode: "overlay", fgcolor: "#ffffff", fgopacity: 0.45, size: 8, solidity: 0.2 }, line: { color: ink("edge"), width: 1 } },
      hovertemplate: `round %{x}: %{y:.3g} clients<extra>α = ${alpha}</extra>`,
    })), { barmode: "stack", bargap: 0.15, xaxis: axis("round"), yaxis: axis("clients, mean over seeds") });
  };

  // The budget sliders

  const COSTS = ["seconds", "bytes", "joules"];
  const measure = !data.trained ? "rounds" : data.metric.share ? "fraction" : "number";
  const better = data.trained && !data.metric.higher ? -1 : 1;
  const most = Object.fromEntries(COSTS.map((kind) => [kind, Math.max(...data.held.flat().map((seed) => seed.total[kind]))]));
  const interval = (values, comparisons = 1) => {
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    if (values.length === 1) return { mean, half: 0 };
    const square = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
    return { mean, half: data.t[values.length][comparisons] * Math.sqrt(square / values.length) };
  };
  // The rule of edgefl/report/paired.py: differences by seed; the level is shared by the comparisons that are left.
  const close = (one, other) => Math.abs(one - other) <= 1e-6 * Math.max(Math.abs(one), Math.abs(other));
  const difference = (best, other, comparisons) => {
    const shared = best.values.filter(([seed]) => other.values.some(([own]) => own === seed));
    const values = shared.map(([seed, value]) => {
      const against = other.values.find(([own]) => own === seed)[1];
      return close(value, against) ? 0 : better * (value - against);
    });
    if (values.length < 2 && (values.length === 0 || best.values.length > 1 || other.values.length > 1)) return { mean: 0, half: Infinity, seeds: 0 };
    const { mean, half } = interval(values, comparisons);
    const least = values.length > 1 ? 1.96 * Math.hypot(data.unseen[best.index], data.unseen[other.index]) / Math.sqrt(values.length) : 0;
    return { mean, half: Math.max(half < 1e-6 * Math.abs(mean) ? 0 : half, least), seeds: values.length };
  };
  const standing = (ranked) => {
    const [best, ...others] = ranked;
    let left = others;
    const open = ({ behind }) => behind.seeds < 3 || Math.abs(behind.mean) <= behind.half;
    for (let before = Infinity; left.length && left.length < before;) {
      before = left.length;
      others.filter((each) => left.includes(each)).forEach((each) => { each.behind = difference(best, each, before); });
      left = left.filter(open);
    }
    return { open: left };
  };
  const written = ({ mean, half }) => {
    if (!half) return quantity(mean, measure);
    const number = (value) => (measure === "fraction" ? (100 * value).toFixed(1) : quantity(value, measure));
    return `${number(mean)} ± ${number(half)}${measure === "fraction" ? " %" : ""}`;
  };
  const lastWithin = (seed, limits) => {
    let last = -1;
    while (last + 1 < seed.value.length && COSTS.every((kind) => seed[kind][last + 1] <= limits[kind] * (1 + 1e-9))) last += 1;
    return last;
  };
  const standings = (limits) => data.held.map((seeds, index) => {
    const last = seeds.map((seed) => lastWithin(seed, limits));
    if (last.some((at) => at < 0)) return { index, missing: true };
    const spent = Object.fromEntries(COSTS.map((kind) => [kind, seeds.reduce((sum, seed, at) => sum + seed[kind][last[at]], 0) / seeds.length]));
    const over = seeds.every((seed, at) => last[at] === seed.value.length - 1 && COSTS.every((kind) => seed.total[kind] < limits[kind]));
    const values = seeds.map((seed, at) => [seed.seed, seed.value[last[at]]]);
    return { index, values, ...interval(values.map(([, value]) => value)), spent, over };
  });
  const sentence = (limits, found) => {
    const set = COSTS.filter((kind) => Number.isFinite(limits[kind])).map((kind) => quantity(limits[kind], kind));
    const start = set.length ? `Within ${listed(set)},` : "Without a limit,";
    const ranked = found.filter((each) => !each.missing).sort((one, other) => better * (other.mean - one.mean));
    const missing = found.filter((each) => each.missing).map((each) => data.names[each.index]);
    const none = missing.length ? ` ${listed(missing)} ${missing.length > 1 ? "have" : "has"} no ${data.trained ? "evaluated model" : "finished round"} yet.` : "";
    if (!ranked.length) return `${start} no method has ${data.trained ? "an evaluated model" : "finished a round"} yet.`;
    const figure = (each) => `${data.names[each.index]} (${written(each)}${data.trained ? "" : " rounds"})`;
    const ended = set.length ? ranked.filter((each) => each.over).map((each) => data.names[each.index]) : [];
    const last = data.trained ? "model" : "round";
    const early = ended.length && ended.length < ranked.length ? ` ${listed(ended)} ended before this limit and ${ended.length > 1 ? "count with their" : "counts with its"} last ${last}.` : "";
    const note = `${none}${early}`;
    if (ranked.length === 1) return `${start} ${figure(ranked[0])} is the only method with ${data.trained ? "an evaluated model" : "a finished round"}.${note}`;
    const { open } = standing(ranked);
    const best = ranked[0];
    const names = (list) => listed(list.map((each) => data.names[each.index]));
    if (!open.length) return `${start} ${figure(best)} is best (95 % sure, ahead of ${ranked.length > 2 ? "all others" : names(ranked.slice(1))}).${note}`;
    if (ranked.every((each) => each === best || each.behind.mean === 0)) return `${start} all methods are equal, ${written(best)}.${note}`;
    if (best.values.length < 3) return `${start} ${figure(best)} is ahead, not decided: at least 3 seeds are needed.${note}`;
    return `${start} no clear winner: ${figure(best)} is ahead; not decided: ${names(open)}.${note}`;
  };
  const starts = {}; // the sliders' places that stand for the scenario's own budgets, exactly
  const updateStandings = () => {
    const limits = {};
    COSTS.forEach((kind) => {
      const slider = byId(`budget-${kind}`);
      const free = Number(slider.value) > 200;
      limits[kind] = free ? Infinity : slider.value === starts[kind] ? Math.min(...data.budgets[kind]) : (Number(slider.value) / 200) * most[kind];
      const words = free ? "no limit" : quantity(limits[kind], kind);
      byId(`budget-${kind}-value`).textContent = words;
      slider.setAttribute("aria-valuetext", words);
    });
    const found = standings(limits);
    byId("winner").textContent = together(sentence(limits, found));
    const body = document.querySelector("#standings tbody");
    body.replaceChildren();
    [...found].sort((one, other) => (one.missing || 0) - (other.missing || 0) || better * (other.mean - one.mean)).forEach((each) => {
      const row = body.insertRow();
      const key = document.createElement("span");
      key.className = "key";
      key.style.background = colour(each.index);
      const name = row.insertCell();
      name.append(key, data.names[each.index]);
      const cells = each.missing ? ["–", "–", "–", "–"] : [written(each), ...COSTS.map((kind) => quantity(each.spent[kind], kind))];
      cells.forEach((words) => { const cell = row.insertCell(); cell.className = "number"; cell.textContent = words; });
    });
  };
  // Start at the scenario's budgets if they are below the largest amounts spent.
  COSTS.forEach((kind) => {
    const limit = Math.min(...data.budgets[kind], Infinity);
    if (limit < most[kind]) {
      byId(`budget-${kind}`).value = Math.max(1, Math.round((200 * limit) / most[kind]));
      starts[kind] = byId(`budget-${kind}`).value;
    }
    byId(`budget-${kind}`).addEventListener("input", updateStandings);
  });

  const draw = () => { drawMetric(); drawFront(); drawTraffic(); drawTime(); drawClients(); drawBlocks(); updateStandings(); };
  all('input[name="over"]').forEach((button) => button.addEventListener("change", drawMetric));
  all('input[name="cost"]').forEach((button) => button.addEventListener("change", drawFront));
  ["clients-method", "blocks-method"].forEach((name) => { if (byId(name)) byId(name).addEventListener("change", draw); });
  if (byId("clients-details")) byId("clients-details").addEventListener("toggle", drawClients);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; draw(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; draw(); });
  draw();
  document.documentElement.dataset.ready = "yes";
})();
