// Runs before the first paint, so that the page never flashes in the wrong theme: the one that
// the user has chosen in any tab, or that of the system.
{
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = localStorage.getItem("tidegate.theme");
    document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    dispatchEvent(new Event("tidegate-theme"));
  };
  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
}
