-- A tide forecast service on lua-http. See system.toml for the environment variables.
local condition = require "cqueues.condition"
local cqueues = require "cqueues"
local client = require "http.client"
local headers = require "http.headers"
local request = require "http.request"
local server = require "http.server"
local socket = require "socket"

local function setting(name)
	return (assert(os.getenv(name), name .. " is not set"))
end

local function number(name)
	return (assert(tonumber(setting(name)), name .. " is not a number"))
end

-- Returns a function that calls a function while it holds one of COUNT permits.
local function limited(count, call)
	local free, returned = count, condition.new()
	return function()
		while free == 0 do
			returned:wait()
		end
		free = free - 1
		call()
		free = free + 1
		returned:signal(1)
	end
end

local function harbors(count)
	local list = {}
	for i = 1, count do
		list[i] = { name = "harbor <" .. i .. ">", depth = i * 7919 % 300 / 10 }
	end
	return list
end

-- Returns a table of the first harbors in HTML.
local function render(list, count)
	local rows = {}
	for i = 1, count do
		local name = list[i].name:gsub("[<>&]", { ["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;" })
		rows[i] = ("<tr><td>%s<td>%.1f m"):format(name, list[i].depth)
	end
	return table.concat(rows)
end

-- Returns a handler that renders 100 of 10,000 harbors, and then may collect garbage.
local function atlas(collects)
	local list = harbors(10000)
	return function()
		render(list, 100)
		if collects then
			collectgarbage()
		end
	end
end

local handlers = {}

function handlers.hello()
	return function() end
end

function handlers.wait()
	return function() cqueues.sleep(0.02) end
end

-- LuaSocket's sleep blocks all coroutines.
function handlers.block()
	return function() socket.sleep(0.02) end
end

function handlers.gauge()
	return limited(number "GAUGES", function() cqueues.sleep(0.01) end)
end

function handlers.boat()
	return limited(number "BOATS", function() cqueues.sleep(0.02) end)
end

handlers["table"] = function()
	local list = harbors(300)
	return function() render(list, 300) end
end

function handlers.atlas()
	return atlas(false)
end

handlers["atlas-collect"] = function()
	return atlas(true)
end

function handlers.export()
	local zlib = require "zlib"
	local level = number "LEVEL"
	math.randomseed(1)
	local lines = {}
	for i = 1, 1000 do
		lines[i] = ("harbor %d,%d cm\n"):format(i, math.random(900))
	end
	local text = table.concat(lines)
	return function() zlib.deflate(level)(text, "finish") end
end

-- Opens a connection to the upstream for each call.
handlers["moon-fresh"] = function()
	local uri = setting "UPSTREAM"
	return function()
		local _, stream = assert(request.new_from_uri(uri):go(5))
		assert(stream:get_body_as_string())
		stream:shutdown()
	end
end

-- Reuses connections to the upstream.
function handlers.moon()
	local template = request.new_from_uri(setting "UPSTREAM")
	local idle = {}
	return function()
		local connection = table.remove(idle)
			or assert(client.connect({ host = template.host, port = template.port, tls = false }, 5))
		local stream = assert(connection:new_stream())
		assert(stream:write_headers(template.headers, true))
		assert(stream:get_headers(5))
		assert(stream:get_body_as_string())
		idle[#idle + 1] = connection
	end
end

local handle = handlers[setting "HANDLER"]()
local is_logged = setting "LOG" == "on"
local keeps_alive = setting "KEEP_ALIVE" == "true"

local function respond(_, stream)
	local received = assert(stream:get_headers())
	handle()
	if is_logged then
		io.stderr:write(os.date("%FT%TZ"), " ", received:get(":method"), " ", received:get(":path"), "\n")
	end
	local sent = headers.new()
	sent:append(":status", "200")
	sent:append("content-type", "text/plain")
	sent:append("content-length", "11")
	if not keeps_alive then
		sent:append("connection", "close")
	end
	assert(stream:write_headers(sent, false))
	assert(stream:write_body_from_string("Hello World"))
end

local service = assert(server.listen {
	host = setting "HOST",
	port = number "PORT",
	tls = false,
	max_concurrent = number "MAX_CONCURRENT",
	onstream = respond,
	-- Clients close their connections at the end of a run.
	onerror = function() end,
})
assert(service:loop())
