// Neuroglancer as a folder of static files, for scripts/viewers. Some of its icons are only in a commit on GitHub: a
// circle stands for each.
const circle = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><circle cx="12" cy="12" r="8"/></svg>';
const icons = {
  name: "icons",
  enforce: "pre",
  resolveId: (id) => (id.startsWith("ikonate/") ? `\0${id}` : undefined),
  load: (id) => (id.startsWith("\0ikonate/") ? `export default ${JSON.stringify(circle)}` : undefined),
};
export default {
  base: "./",
  plugins: [icons],
  build: { target: "es2022", chunkSizeWarningLimit: 100_000 },
  worker: { format: "es", plugins: () => [icons] },
};
