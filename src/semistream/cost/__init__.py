"""The papers' cost models: equations, one file per algorithm. Imports nothing from `joins`."""
