// The theme adds wide tables and the buttons of code blocks after the page has loaded.
new MutationObserver(() => {
  // The keyboard can scroll wide tables too.
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0;
  // Landmarks have names of their own.
  const names = {};
  for (const nav of document.querySelectorAll("nav.md-nav[aria-label]")) {
    const name = nav.dataset.name ??= nav.getAttribute("aria-label");
    names[name] = (names[name] ?? 0) + 1;
    if (names[name] > 1) nav.setAttribute("aria-label", `${name} ${names[name]}`);
  }
  document.querySelectorAll("nav.md-code__nav").forEach((nav, n) => nav.setAttribute("aria-label", `Code ${n + 1}`));
}).observe(document.body, { childList: true, subtree: true });
