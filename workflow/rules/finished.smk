# A finished model maps scenes: there is no split and no training. Labels, if there are some, only test the maps.
FILES |= {name: [] for name in ("chips", "fold_metrics", "onnx")}
FILES |= {} if config["label"]["source"] or config["label"]["asset"] else {"labels": [], "metrics": []}
FILES["model"], FILES["calibration"] = f"{config['model']}/manifest.json", config["calibration"] or []
FILES["tested_model"] = FILES["model"]
REPORT_FILES = {"status": f"{RESULTS}/status.json"}
