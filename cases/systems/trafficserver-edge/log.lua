-- Writes a line per request to the pipe of the log collector, whose path is the script's argument.
function __init__(arguments)
    collector = assert(io.open(arguments[1], "a"))
end

function do_remap()
    local line = ts.client_request.get_method() .. " " .. ts.client_request.get_uri()
    collector:write(os.date("%Y-%m-%dT%H:%M:%S "), line, " from 127.0.0.1\n")
    collector:flush()
    return 0
end
