/* origins.js - how tokens came: which pieces of a text were drafted, and how deep. */
"use strict";

const MAX_DEPTH = 8; /* colours */

/* A message keeps runs [end, depth, end, depth ...] over its content and its reasoning: bytes up to `end` (UTF-16 units) came
 * at that depth; -1 is unknown. What the server tells of tokens includes tags that are no part of either text, so texts are
 * followed through the tokens' characters. */
class Origins {
  constructor() {
    this.raw = "";
    this.ends = [];
    this.depths = [];
    this.at = 0;    /* in raw */
    this.token = 0; /* the one that raw[at] belongs to */
    this.told = -1; /* the token of the last run */
    this.counts = new Array(MAX_DEPTH + 1).fill(0);
    this.n = 0;
  }
  add(list) {
    for (const token of list) {
      if (typeof token?.text !== "string" || !Number.isInteger(token.depth)) continue;
      this.raw += token.text;
      this.ends.push(this.raw.length);
      this.depths.push(token.depth);
      this.counts[Math.min(MAX_DEPTH, Math.max(0, token.depth))]++;
      this.n++;
    }
  }
  depthAt(at) {
    while (this.token < this.ends.length && this.ends[this.token] <= at) this.token++;
    return this.token < this.ends.length ? this.depths[this.token] : -1;
  }
  /* Where `text` stands among the tokens: runs behind those of `runs`, whose text ends at `from`. */
  follow(text, runs, from) {
    const begin = this.raw.indexOf(text, this.at);
    let at = begin >= 0 && begin - this.at < 200 ? begin : this.at;
    for (let i = 0; i < text.length; i++) {
      let depth = -1;
      if (this.raw[at] === text[i]) depth = this.depthAt(at++);
      else if (this.raw[at] === "\ufffd") { /* a character in several tokens */
        depth = this.depthAt(at);
        while (this.raw[at] === "\ufffd") at++;
        if (text.charCodeAt(i) >= 0xd800 && text.charCodeAt(i) < 0xdc00) i++;
      }
      const end = from + i + 1, last = runs.length - 2;
      const sameToken = this.token === this.told && depth >= 0;
      this.told = this.token;
      if (last >= 0 && runs[last + 1] === depth && (sameToken || depth < 1)) runs[last] = end;
      else runs.push(end, depth);
    }
    this.at = at;
  }
  passes() {
    return this.counts[0];
  }
}
