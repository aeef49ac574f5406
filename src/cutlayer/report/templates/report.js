addEventListener("beforeprint", () => {
  for (const closed of document.querySelectorAll("details:not([open])")) {
    closed.open = true;
    addEventListener("afterprint", () => { closed.open = false; }, { once: true });
  }
});
const unfold = () => {
  const folded = document.getElementById(location.hash.slice(1))?.querySelector(":scope > details");
  if (folded) folded.open = true;
};
addEventListener("hashchange", unfold);
unfold();
