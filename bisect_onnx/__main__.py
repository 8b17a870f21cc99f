"""``python -m bisect_onnx``: the command line."""

from bisect_onnx.cli.start import main

main()
