"use strict";
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const label = () => { button.textContent = dark() ? "light" : "dark"; };
  button.hidden = false;
  button.title = "switch between light and dark";
  button.onclick = () => { root.dataset.theme = dark() ? "light" : "dark"; label(); };
  system.addEventListener("change", label);
  label();

  const {ops, scopes, places, agree, called, lints} = JSON.parse(document.getElementById("data").textContent);
  const byId = new Map(ops.id.map((id, i) => [id, i]));
  const get = id => document.getElementById(id);
  const view = get("view"), box = get("rows"), space = get("space"), search = get("search"), detail = get("detail");
  const HEIGHT = 24;
  const open = new Set(scopes.length === 1 ? [0] : []);
  let list = [], chosen = -1;  // of the list: [item, depth]

  const paths = scopes.map(() => "");
  const counts = scopes.map(() => 0), marked = scopes.map(() => 0);
  scopes.forEach(([name, parent], s) => { paths[s] = parent < 0 ? name : `${paths[parent]}/${name}`; });
  for (let s = scopes.length - 1; s >= 0; --s) {
    for (const item of scopes[s][2]) if (item >= 0) { ++counts[s]; marked[s] += ops.lint[item]; }
    const parent = scopes[s][1];
    if (parent >= 0) { counts[parent] += counts[s]; marked[parent] += marked[s]; }
  }
  if (open.size === 0) open.add(0);
  let texts = null;
  const textOf = i => {
    texts ??= ops.id.map((id, k) =>
      `op-${id} ${ops.text[k]} ${paths[ops.scope[k]]} ${places[ops.place[k]]}`.toLowerCase());
    return texts[i];
  };

  const add = (node, kind, text) => {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = text;
    node.append(made);
    return made;
  };
  const strip = number => {
    const SVG = "http://www.w3.org/2000/svg";
    const made = document.createElementNS(SVG, "svg"), use = document.createElementNS(SVG, "use");
    for (const [name, value] of [["class", "strip"], ["width", 120], ["height", 12]]) made.setAttribute(name, value);
    use.setAttribute("href", `#strip-${number}`);
    made.append(use);
    return made;
  };

  const visible = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    list = [];
    if (words.length) {
      for (let i = 0; i < ops.id.length; ++i) {
        const text = textOf(i);
        if (words.every(word => /^op-\d+$/.test(word) ? word === `op-${ops.id[i]}` : text.includes(word)))
          list.push([i, 0]);
      }
      get("count").textContent = `${list.length} of ${ops.id.length} ops`;
      return;
    }
    get("count").textContent = `${ops.id.length} ops`;
    const walk = (scope, depth) => {
      list.push([-1 - scope, depth]);
      if (open.has(scope)) for (const item of scopes[scope][2]) {
        if (item < 0) walk(-1 - item, depth + 1); else list.push([item, depth + 1]);
      }
    };
    scopes.forEach(([, parent], s) => { if (parent < 0) walk(s, 0); });
  };

  const rowOf = ([item, depth], at) => {
    const row = document.createElement("div");
    row.className = "row";
    row.style.top = `${at * HEIGHT}px`;
    row.style.paddingLeft = `${8 + Math.min(depth, 16) * 16}px`;
    row.setAttribute("role", "treeitem");
    row.setAttribute("aria-level", depth + 1);
    if (item < 0) {
      const scope = -1 - item, isOpen = open.has(scope);
      row.classList.add("scope");
      row.dataset.scope = scope;
      row.setAttribute("aria-expanded", isOpen);
      const what = add(row, "span", `${isOpen ? "▾" : "▸"} ${scopes[scope][0]} `);
      what.className = "what";
      const more = marked[scope] ? `, ${marked[scope]} with lints` : "";
      add(what, "small", `${counts[scope]} op${counts[scope] === 1 ? "" : "s"}${more}`);
      if (marked[scope] && !isOpen) row.classList.add("lint");
      row.onclick = () => { if (isOpen) open.delete(scope); else open.add(scope); refresh(); };
      return row;
    }
    row.id = `op-${ops.id[item]}`;
    row.classList.toggle("lint", ops.lint[item] === 1);
    row.classList.toggle("chosen", item === chosen);
    const what = add(row, "span", ops.text[item]);
    what.className = "what";
    row.title = ops.text[item];
    const agreeing = add(row, "span");
    agreeing.className = "agree";
    if (ops.agree[item] >= 0) {
      const [text, number] = agree[ops.agree[item]];
      agreeing.append(strip(number), text);
    }
    add(row, "span", places[ops.place[item]]).className = "where";
    row.onclick = () => { history.replaceState(null, "", `#${row.id}`); choose(item); draw(); };
    return row;
  };

  const draw = () => {
    space.style.height = `${list.length * HEIGHT}px`;
    const first = Math.max(Math.floor(box.scrollTop / HEIGHT) - 10, 0);
    const last = Math.min(first + Math.ceil(box.clientHeight / HEIGHT) + 20, list.length);
    space.replaceChildren(...list.slice(first, last).map((each, i) => rowOf(each, first + i)));
  };
  const refresh = () => { visible(); draw(); };

  const choose = item => {
    chosen = item;
    detail.replaceChildren();
    detail.hidden = false;
    const head = add(detail, "p");
    const link = add(head, "a", `op-${ops.id[item]}`);
    link.href = `#op-${ops.id[item]}`;
    head.append(` in ${paths[ops.scope[item]]}, ${places[ops.place[item]]}`);
    add(add(detail, "p"), "code", ops.text[item]);
    if (ops.agree[item] >= 0) {
      const [text, number] = agree[ops.agree[item]];
      const line = add(detail, "p", "replicas that agree: ");
      line.append(strip(number), text);
    }
    for (const lint of lints[ops.id[item]] ?? []) add(detail, "p", lint).className = "root";
    for (const scope of called[ops.id[item]] ?? []) {
      const go = add(add(detail, "p", "runs "), "button", scopes[scope][0]);
      go.onclick = () => { search.value = ""; open.add(scope); refresh(); scrollTo(-1 - scope); };
    }
  };
  const scrollTo = item => {
    const at = list.findIndex(each => each[0] === item);
    space.style.height = `${list.length * HEIGHT}px`;  // else it cannot be scrolled so far
    box.scrollTop = Math.max(at * HEIGHT - box.clientHeight / 3, 0);
    draw();
  };
  const show = () => {
    const found = /^#op-(\d+)$/.exec(location.hash);
    const item = found ? byId.get(Number(found[1])) : undefined;
    if (item === undefined) return;
    search.value = "";
    for (let scope = ops.scope[item]; scope >= 0; scope = scopes[scope][1]) open.add(scope);
    choose(item);
    visible();
    scrollTo(item);
    view.scrollIntoView({block: "center"});
  };

  view.hidden = false;
  box.addEventListener("scroll", draw);
  addEventListener("resize", draw);
  addEventListener("hashchange", show);
  document.addEventListener("click", event => {
    const link = event.target.closest?.("a[href^='#op-']");
    if (link && link.hash === location.hash) show();  // it was followed before
  });
  search.addEventListener("input", () => { box.scrollTop = 0; refresh(); });
  get("close").onclick = () => { open.clear(); search.value = ""; box.scrollTop = 0; refresh(); };
  refresh();
  show();
  root.dataset.ready = "yes";
})();
