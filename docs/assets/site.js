// Wide tables scroll sideways; this lets the keyboard scroll them too. The theme wraps them after the page has loaded.
new MutationObserver(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });
