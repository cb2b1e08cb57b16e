"""Pictures of models, trainings and studies. matplotlib is imported when something is drawn."""
