import "neuroglancer/unstable/main.bundle.js";
