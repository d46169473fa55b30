"""Tests of the project package."""
