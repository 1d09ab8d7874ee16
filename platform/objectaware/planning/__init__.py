"""Estimate how long stages take on a given number of GPUs and cores, from the rates measured on one machine."""
