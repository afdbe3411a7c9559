/* markdown.js - Markdown as DOM nodes, never as HTML: what a model writes can become text, and elements of a short list, and
 * nothing else. Every text node knows the place of its text in the source, so that tokens can be coloured where they stand.
 */
"use strict";

const Markdown = (() => {
  const LINK = /^(https?:\/\/|mailto:)[^\s<>"]+$/i;

  function element(name, className) {
    const node = document.createElement(name);
    if (className) node.className = className;
    return node;
  }

  /* ctx.text makes nodes of source[from, to). */
  function addText(parent, ctx, from, to) {
    if (to > from) parent.append(ctx.text(ctx.source.slice(from, to), from));
  }

  /* Inline marks of source[from, to). Each character is looked at a bounded number of times: closing marks that were looked
   * for in vain are remembered. */
  function inline(parent, ctx, from, to, depth = 0) {
    const s = ctx.source;
    const failed = new Map();
    let plain = from;
    const closing = (mark, at) => {
      if ((failed.get(mark) ?? Infinity) <= at) return -1;
      const end = s.indexOf(mark, at);
      if (end >= 0 && end + mark.length <= to) return end;
      failed.set(mark, at);
      return -1;
    };
    for (let i = from; i < to;) {
      const c = s[i];
      if (c === "\\" && i + 1 < to && /[\\`*_{}[\]()#+\-.!|>~]/.test(s[i + 1])) {
        addText(parent, ctx, plain, i);
        plain = i + 1;
        i += 2;
        continue;
      }
      if (c === "`") {
        let n = 1;
        while (i + n < to && s[i + n] === "`") n++;
        const end = closing("`".repeat(n), i + n);
        if (end > 0) {
          addText(parent, ctx, plain, i);
          const code = element("code");
          addText(code, ctx, i + n, end);
          parent.append(code);
          plain = i = end + n;
          continue;
        }
        i += n;
        continue;
      }
      if (depth < 8 && (c === "*" || c === "_" || c === "~")) {
        const double = s[i + 1] === c;
        const mark = double ? c + c : c;
        const wordBefore = i > from && /\w/.test(s[i - 1]);
        const after = s[i + mark.length];
        if ((c !== "~" || double) && after && !/\s/.test(after) && !(c === "_" && wordBefore)) {
          let end = closing(mark, i + mark.length + 1);
          if (end > 0 && !/\s/.test(s[end - 1]) && !(c === "_" && /\w/.test(s[end + mark.length] ?? ""))) {
            if (!double && s[end + 1] === c) end = -1;
            if (end > 0) {
              addText(parent, ctx, plain, i);
              const node = element(c === "~" ? "del" : double ? "strong" : "em");
              inline(node, ctx, i + mark.length, end, depth + 1);
              parent.append(node);
              plain = i = end + mark.length;
              continue;
            }
          }
        }
        i += mark.length;
        continue;
      }
      if (c === "[" && depth < 8) {
        const middle = closing("](", i + 1);
        const end = middle > 0 ? closing(")", middle + 2) : -1;
        const target = end > 0 ? s.slice(middle + 2, end).trim().split(/\s/)[0] : "";
        if (end > 0 && LINK.test(target) && !s.slice(i + 1, middle).includes("\n\n")) {
          addText(parent, ctx, plain, s[i - 1] === "!" && i > from ? i - 1 : i);
          const link = element("a");
          link.href = target;
          link.target = "_blank";
          link.rel = "noopener noreferrer";
          inline(link, ctx, i + 1, middle, depth + 1);
          parent.append(link);
          plain = i = end + 1;
          continue;
        }
      }
      i++;
    }
    addText(parent, ctx, plain, to);
  }

  function lines(source, from, to) {
    const all = [];
    for (let at = from; at < to;) {
      let end = source.indexOf("\n", at);
      if (end < 0 || end > to) end = to;
      all.push({ from: at, to: end, text: source.slice(at, end) });
      at = end + 1;
    }
    return all;
  }

  const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
  const HEADING = /^(#{1,6})\s+/;
  const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
  const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+/;
  const QUOTE = /^ {0,3}> ?/;
  const TABLE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

  function fence(ctx, all, i) {
    const open = FENCE.exec(all[i].text);
    const close = new RegExp("^ {0,3}" + open[1][0] + "{" + open[1].length + ",}\\s*$");
    let end = i + 1;
    while (end < all.length && !close.test(all[end].text)) end++;
    const box = element("div", "code"), head = element("div", "code-head"), label = element("span");
    label.textContent = open[2].trim().slice(0, 40) || "text";
    const copy = element("button", "small");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.setAttribute("aria-label", "Copy the code");
    const pre = element("pre"), code = element("code");
    pre.tabIndex = 0;
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", "Code, " + label.textContent);
    copy.addEventListener("click", () => ctx.copy(code.textContent, copy));
    if (end > i + 1) addText(code, ctx, all[i + 1].from, all[end - 1].to);
    pre.append(code);
    head.append(label, copy);
    box.append(head, pre);
    return { node: box, next: end + 1 };
  }

  function cells(line) {
    const found = [];
    let from = line.from + (/^\s*\|/.exec(line.text)?.[0].length ?? 0);
    for (let i = from; i <= line.to; i++) {
      const at = line.text[i - line.from];
      if (i === line.to ? i > from : at === "|" && line.text[i - line.from - 1] !== "\\") {
        found.push([from, i]);
        from = i + 1;
      }
    }
    return found.filter(([a, b], k) => k < found.length - 1 || line.text.slice(a - line.from, b - line.from).trim());
  }

  function table(ctx, all, i) {
    const box = element("div", "table"), node = element("table"), head = element("thead"), body = element("tbody");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Table");
    const columns = cells(all[i]).length;
    let k = i;
    for (; k < all.length && all[k].text.includes("|"); k++) {
      if (k === i + 1) continue;
      const row = element("tr");
      for (const [from, to] of cells(all[k]).slice(0, columns)) {
        const cell = element(k === i ? "th" : "td");
        if (k === i) cell.scope = "col";
        const inner = ctx.source.slice(from, to);
        const start = from + (inner.length - inner.trimStart().length);
        inline(cell, ctx, start, Math.max(start, from + inner.trimEnd().length));
        row.append(cell);
      }
      (k === i ? head : body).append(row);
    }
    node.append(head, body);
    box.append(node);
    return { node: box, next: k };
  }

  /* Items whose lines begin at one indentation; deeper lines belong to the item before. */
  function list(ctx, all, i, depth) {
    const first = ITEM.exec(all[i].text);
    const indent = first[1].length, ordered = /\d/.test(first[2]);
    const node = element(ordered ? "ol" : "ul");
    if (ordered) node.start = parseInt(first[2], 10);
    let k = i;
    while (k < all.length) {
      const item = ITEM.exec(all[k].text);
      if (!item || item[1].length < indent || /\d/.test(item[2]) !== ordered || RULE.test(all[k].text)) break;
      if (item[1].length > indent + 1) break;
      const li = element("li");
      const content = [{ ...all[k], from: all[k].from + item[0].length, text: all[k].text.slice(item[0].length) }];
      k++;
      while (k < all.length) {
        const text = all[k].text, next = ITEM.exec(text);
        if (next && next[1].length <= indent + 1) break;
        if (!text.trim()) {
          if (k + 1 >= all.length || !/^\s{2,}\S/.test(all[k + 1].text)) break;
        } else if (!next && !/^\s/.test(text) && !all[k - 1].text.trim()) break;
        else if (HEADING.test(text) || FENCE.test(text) && !/^\s{2,}/.test(text)) break;
        const cut = Math.min(text.length - text.trimStart().length, item[0].length);
        content.push({ from: all[k].from + cut, to: all[k].to, text: text.slice(cut) });
        k++;
      }
      if (depth < 6) blocks(li, ctx, content, depth + 1, true);
      else inline(li, ctx, content[0].from, content[content.length - 1].to);
      node.append(li);
      let blank = k;
      while (blank < all.length && !all[blank].text.trim()) blank++;
      const after = blank < all.length && ITEM.exec(all[blank].text);
      if (after && after[1].length >= indent && /\d/.test(after[2]) === ordered) k = blank;
    }
    return { node, next: k };
  }

  function paragraph(parent, ctx, run, tight) {
    const node = tight ? parent : element("p");
    run.forEach((line, k) => {
      const start = line.text.length - line.text.trimStart().length;
      if (k) node.append(ctx.text("\n", line.from - 1));
      inline(node, ctx, line.from + start, line.to);
      if (/ {2,}$/.test(line.text) && k < run.length - 1) node.append(element("br"));
    });
    if (!tight) parent.append(node);
  }

  function one(ctx, all, i, depth) {
    const text = all[i].text;
    const heading = HEADING.exec(text);
    if (FENCE.test(text)) return fence(ctx, all, i);
    if (heading) {
      const node = element("h" + Math.min(6, heading[1].length + 2));
      inline(node, ctx, all[i].from + heading[0].length, all[i].to);
      return { node, next: i + 1 };
    }
    if (RULE.test(text)) return { node: element("hr"), next: i + 1 };
    if (QUOTE.test(text) && depth < 6) {
      const content = [];
      let k = i;
      for (; k < all.length && QUOTE.test(all[k].text); k++) {
        const cut = QUOTE.exec(all[k].text)[0].length;
        content.push({ from: all[k].from + cut, to: all[k].to, text: all[k].text.slice(cut) });
      }
      const node = element("blockquote");
      blocks(node, ctx, content, depth + 1, false);
      return { node, next: k };
    }
    if (ITEM.test(text)) return list(ctx, all, i, depth);
    const below = all[i + 1]?.text ?? "";
    if (text.includes("|") && below.includes("-") && TABLE.test(below)) return table(ctx, all, i);
    return null;
  }

  function begins(text) {
    return !text.trim() || FENCE.test(text) || HEADING.test(text) || RULE.test(text) || QUOTE.test(text) || ITEM.test(text);
  }

  function blocks(parent, ctx, all, depth, tight) {
    for (let i = 0; i < all.length;) {
      if (!all[i].text.trim()) {
        i++;
        continue;
      }
      const made = one(ctx, all, i, depth);
      if (made) {
        parent.append(made.node);
        i = Math.max(made.next, i + 1);
        continue;
      }
      let k = i + 1;
      while (k < all.length && !begins(all[k].text)) k++;
      paragraph(parent, ctx, all.slice(i, k), tight && i === 0);
      i = k;
    }
  }

  /* Pieces of the source that can be rendered one by one: a piece never changes once another one follows it. */
  function split(source) {
    const pieces = [];
    let from = 0, fenced = null, inList = false;
    for (const line of lines(source, 0, source.length)) {
      const mark = FENCE.exec(line.text);
      if (mark && !fenced) fenced = mark[1];
      else if (mark && fenced && mark[1][0] === fenced[0] && mark[1].length >= fenced.length && !mark[2].trim()) fenced = null;
      if (!fenced && !line.text.trim() && line.from > from) {
        const next = source.slice(line.to + 1, line.to + 40);
        inList = ITEM.test(source.slice(from, from + 40)) && (next === "" || /^(\s{2,}\S|\s*$)/.test(next) || ITEM.test(next));
        if (!inList && line.to < source.length) {
          pieces.push([from, line.to]);
          from = line.to + 1;
        }
      }
    }
    if (from < source.length) pieces.push([from, source.length]);
    return pieces;
  }

  function render(source, from, to, text, copy) {
    const fragment = document.createDocumentFragment();
    blocks(fragment, { source, text, copy }, lines(source, from, to), 0, false);
    return fragment;
  }

  return { render, split };
})();
