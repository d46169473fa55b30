// Keys of the inbox: j and k move, x chooses, a approves, d goes to the reason for a no.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const items = [...document.querySelectorAll("[data-inbox-item]")];
  if (!items.length) return;
  const here = items.indexOf(document.activeElement.closest("[data-inbox-item]"));
  const item = items[here];
  const go = (index) => items[Math.max(0, Math.min(items.length - 1, index))].focus();
  if (event.key === "j") go(here + 1);
  else if (event.key === "k") go(here < 0 ? 0 : here - 1);
  else if (event.key === "x" && item) item.querySelector("input[type=checkbox]").click();
  else if (event.key === "a" && item) item.querySelector("[data-inbox-approve]").click();
  else if (event.key === "d" && item) item.querySelector("[data-inbox-reason]").focus();
  else return;
  event.preventDefault();
});
