/* panel.js - the figures of speculation beside a chat: what page.js knows of the answer that is shown, and T(n) of the server. */
"use strict";

let curve = null; /* {points: [{n, seconds}]} */

function shown() {
  return state.running?.message ?? [...state.chat.messages].reverse().find((m) => m.role === "assistant");
}

function seconds(ms) {
  return ms < 100 ? ms.toFixed(0) + " ms" : (ms / 1e3).toFixed(ms < 1e4 ? 2 : 1) + " s";
}

function renderPanel() {
  if ($("panel").hidden) return;
  const message = shown(), t = message?.timings, live = state.running;
  const counts = message?.counts ?? [];
  const n = t?.predicted_n ?? counts.reduce((a, b) => a + b, 0);
  const passes = t?.n_passes ?? counts[0] ?? 0;
  const rows = [["Tokens", n ? String(n) : "–"], ["Passes of the model", passes ? String(passes) : "–"],
                ["Tokens per pass", passes ? (n / passes).toFixed(2) : "–"],
                ["Passes saved", n > passes && passes ? `${n - passes} (${Math.round((100 * (n - passes)) / n)} %)` : "–"],
                ["Tokens per second", (t?.predicted_per_second ?? live?.rate)?.toFixed(1) ?? "–"]];
  if (t?.draft_n) rows.push(["Drafted, accepted", `${t.draft_n}, ${t.draft_n_accepted}`]);
  if (t?.predicted_plain_ms && t.predicted_ms)
    rows.push(["Without drafts", `${seconds(t.predicted_plain_ms)} instead of ${seconds(t.predicted_ms)}`]);
  if (t?.prompt_n) rows.push(["Prompt", `${t.prompt_n + (t.cache_n ?? 0)} tokens, ${t.cache_n ?? 0} cached`]);
  $("figures").replaceChildren(...rows.map(([name, value]) => {
    const row = make("div");
    row.append(make("dt", "", name), make("dd", "", value));
    return row;
  }));
  renderColours(counts);
  const depths = (t?.draft_by_depth ?? []).filter((d) => d.tried || d.drafted).slice(0, 8);
  $("depths").hidden = !depths.length;
  if (depths.length)
    Charts.bars($("depths"), depths.map((d) => {
      const tried = d.tried || d.drafted, share = tried ? d.accepted / tried : 0;
      return { label: String(d.depth), share: Math.min(1, share), title: `depth ${d.depth}: ${d.accepted} of ${tried}` };
    }), "Share of drafts accepted: " +
      depths.map((d) => `depth ${d.depth} ${Math.round((100 * d.accepted) / (d.tried || d.drafted || 1))} %`).join(", "));
  const speeds = message?.speeds ?? [];
  $("speed").hidden = speeds.length < 3;
  if (speeds.length >= 3)
    Charts.line($("speed"), speeds.map((s, i) => [i, s]), "Tokens per second, lately " + Math.round(speeds[speeds.length - 1]));
  $("curve").hidden = !curve;
  if (curve) {
    const base = curve[0].seconds;
    Charts.line($("curve"), curve.map((p) => [p.n, p.seconds / base]), "Cost of a pass: " +
      curve.map((p) => `${p.n} tokens ${(p.seconds / base).toFixed(2)} times one`).join(", "),
      { unit: "×", dots: (p) => `${p[0]} tokens: ${p[1].toFixed(2)} × the time of one` });
  }
}

function renderColours(counts) {
  const legend = $("colours").querySelector(".legend"), bar = $("colours").querySelector(".bar");
  const total = counts.reduce((a, b) => a + b, 0);
  const names = counts.map((count, depth) => ({ count, depth })).filter((d) => d.count || d.depth < 4);
  const all = names.length ? names : [0, 1, 2, 3].map((depth) => ({ count: 0, depth }));
  legend.replaceChildren(...all.map(({ count, depth }) => {
    const item = make("span", "key");
    item.append(make("i", "swatch d" + depth), depth === 0 ? "decoded" : "depth " + depth + (depth === MAX_DEPTH ? "+" : ""));
    if (total) item.append(make("b", "", Math.round((100 * count) / total) + " %"));
    return item;
  }));
  bar.replaceChildren(...(total ? names : []).filter((d) => d.count).map(({ count, depth }) => {
    const part = make("i", "d" + depth);
    part.style.flexGrow = String(count);
    return part;
  }));
}

async function readCurve() {
  try {
    const reply = await fetch("aerie/curve?model=" + encodeURIComponent(state.view.model), { headers: headers() });
    const json = reply.ok ? await reply.json() : null;
    const points = (json?.points ?? []).filter((p) => p.n > 0 && p.seconds > 0).sort((a, b) => a.n - b.n);
    curve = points.length > 1 ? points : null;
  } catch {
    curve = null;
  }
  renderPanel();
}
