"use strict";
// The budget sliders: who leads among the models evaluated within three limits.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (name) => document.getElementById(name);
  // Avoid line breaks between a number and its sign or unit.
  const together = (words) => words.replace(/ ± /g, "\u00a0±\u00a0").replace(/ \[/g, "\u00a0[").replace(/([\d\]]) (?=(%|[kMGTP]?(B|J|s|FLOP|min|h|days)\b))/g, "$1\u00a0");
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
    if (values.length < 2 && (values.length === 0 || best.values.length > 1 || other.values.length > 1)) return { mean: 0, half: Infinity, seeds: values.length };
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
    const apart = open.filter(({ behind }) => !behind.seeds);
    if (apart.length) return `${start} no verdict: no seed of ${names([best])} is one of ${names(apart)}, too.${note}`;
    if (ranked.every((each) => each === best || (each.behind.mean === 0 && each.behind.half < Infinity))) return `${start} all methods are equal, ${written(best)}.${note}`;
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
      key.style.background = `var(--m${each.index % 7})`;
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

  updateStandings();
  // Tables whose headings sort: figures with units by their amount, the largest first; words by the alphabet.
  const scales = Object.fromEntries(Object.values(data.ladders).flat());
  const amount = (words) => {
    const found = words.match(/^≥?≈?\s*(-?[\d.]+(?:e\d+)?)\s*(\S*)/);
    return found ? Number(found[1]) * (scales[found[2]] || 1) : NaN;
  };
  document.querySelectorAll(".sortable th").forEach((head) => {
    const sort = document.createElement("button");
    sort.append(...head.childNodes);
    head.append(sort);
    sort.addEventListener("click", () => {
      const [body] = head.closest("table").tBodies;
      const of = (row) => row.cells[head.cellIndex].textContent;
      const again = head.ariaSort === "descending";
      const numbers = [...body.rows].some((row) => !Number.isNaN(amount(of(row))));
      const order = (one, other) => numbers ? (amount(of(one)) || 0) - (amount(of(other)) || 0) : of(other).localeCompare(of(one));
      const rows = [...body.rows].sort((one, other) => (again ? 1 : -1) * order(one, other));
      [...head.parentNode.cells].forEach((each) => { each.ariaSort = null; });
      head.ariaSort = again ? "ascending" : "descending";
      body.append(...rows);
    });
  });
  document.documentElement.dataset.ready = "yes";
})();
