// Keys of the inbox: j and k move, x chooses, a approves, d goes to the reason for a no, where the
// Enter key declines. Enter in a reason that was reached otherwise decides nothing.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const here = event.target.closest("[data-inbox-item]");
  const isReason = event.target.matches("[data-inbox-reason]");
  if (isReason && event.key === "Enter" && event.target.dataset.goal === "decline") {
    event.preventDefault();
    here.querySelector("[data-inbox-decline]").click();
    return;
  }
  if (event.target.closest("input:not([type=checkbox]), textarea, select")) return;
  const items = [...document.querySelectorAll("[data-inbox-item]")];
  if (!items.length) return;
  const index = items.indexOf(here);
  const go = (wanted) => items[Math.max(0, Math.min(items.length - 1, wanted))].focus();
  if (event.key === "j") go(index + 1);
  else if (event.key === "k") go(index < 0 ? 0 : index - 1);
  else if (event.key === "x" && here) here.querySelector("input[type=checkbox]").click();
  else if (event.key === "a" && here) here.querySelector("[data-inbox-approve]").click();
  else if (event.key === "d" && here) {
    const reason = here.querySelector("[data-inbox-reason]");
    reason.dataset.goal = "decline";
    reason.focus();
  } else return;
  event.preventDefault();
});
document.addEventListener("focusout", (event) => {
  if (event.target.matches("[data-inbox-reason]")) delete event.target.dataset.goal;
});
