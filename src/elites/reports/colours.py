"""One colour per algorithm in every figure, told apart by colour-blind eyes too (Okabe and Ito's palette)."""

ALGORITHMS = {
    "pga-map-elites": "#d55e00",
    "map-elites": "#0072b2",
    "map-elites-sampling": "#56b4e9",
    "deep-grid": "#cc79a7",
    "map-elites-es": "#009e73",
    "qd-pg": "#e69f00",
    "cma-map-elites": "#000000",
    "td3": "#8c8c8c",
}
