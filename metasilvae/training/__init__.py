"""Training of trees and forests: options, genetic search, tuning, checkpoints, and whole runs."""
