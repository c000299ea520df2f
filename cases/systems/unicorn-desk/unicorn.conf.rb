listen "#{ENV.fetch("HOST")}:#{ENV.fetch("PORT")}", backlog: 1024
worker_processes Integer(ENV.fetch("WORKERS"))
preload_app true
