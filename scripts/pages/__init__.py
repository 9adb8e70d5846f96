"""Writes tables and pictures of docs/ from data, results of the lab and recorded noise."""
