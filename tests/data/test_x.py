"""Partitions"""
