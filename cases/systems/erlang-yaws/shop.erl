%% A small shop on Yaws. See system.toml for the environment variables.
-module(shop).
-export([start/0, out/1]).

-define(ITEMS, 10000).

start() ->
    persistent_term:put(handler, handler(option("HANDLER"))),
    Server = [{port, number("PORT")}, {listen, {127, 0, 0, 1}}, {servername, "shop"},
              {appmods, [{"/", shop}]}, {flags, [{access_log, false}, {auth_log, false}]}],
    Global = [{logdir, option("RUN")}, {keepalive_maxuses, maximum("MAX_USES")}],
    ok = yaws:start_embedded(option("RUN"), Server, Global, "shop").

%% Yaws calls this function for each request.
out(_Request) ->
    (persistent_term:get(handler))(),
    [{status, 200}, {content, "text/plain", "Hello World"}].

option(Name) -> os:getenv(Name).
number(Name) -> list_to_integer(option(Name)).

maximum(Name) ->
    case number(Name) of
        0 -> nolimit;
        Number -> Number
    end.

handler("hello") -> fun() -> ok end;
handler("sleep") -> fun() -> timer:sleep(10) end;
handler("stock") ->
    Stock = spawn_link(fun() -> serve(fun() -> timer:sleep(10) end) end),
    fun() -> call(Stock) end;
handler("slots") ->
    Slots = pool(lists:seq(1, number("POOL"))),
    fun() -> with(Slots, fun(_) -> timer:sleep(10) end) end;
handler("hash") ->
    Add = fun(Item, Sum) -> erlang:phash2({Item, Sum}) end,
    fun() -> lists:foldl(Add, 0, lists:seq(1, ?ITEMS)) end;
handler("journal") -> journal(fun(_) -> ok end);
handler("durable-journal") -> journal(fun file:sync/1);
handler("report") ->
    Store = store(),
    fun() -> with(Store, fun(Connection) -> query(Connection, "SELECT pg_sleep(0.02)") end) end;
handler("pay") -> pay(?ITEMS);
handler("pay-one") -> pay(1).

%% One process writes all lines.
journal(Sync) ->
    Path = filename:join(option("RUN"), "journal"),
    Journal = spawn_link(fun() ->
        % The process that opens a raw file must also write it.
        {ok, File} = file:open(Path, [append, raw]),
        serve(fun() -> ok = file:write(File, "order received\n"), Sync(File) end)
    end),
    fun() -> call(Journal) end.

%% Updates one of the first items in a transaction that takes 10 ms.
pay(Items) ->
    Store = store(),
    fun() ->
        Item = integer_to_list(rand:uniform(Items)),
        with(Store, fun(Connection) ->
            query(Connection, "BEGIN"),
            query(Connection, ["UPDATE items SET amount = amount + 1 WHERE id = ", Item]),
            timer:sleep(10),
            query(Connection, "COMMIT")
        end)
    end.

%% Returns a pool of connections to a database with the table items.
store() ->
    [Host, Port] = string:split(option("STORE"), ":"),
    Connect = fun(_) ->
        {ok, Connection} = pgsql:connect([{host, Host}, {port, list_to_integer(Port)},
                                          {user, "bars"}, {password, ""}, {database, "bars"}]),
        Connection
    end,
    Connections = [First | _] = lists:map(Connect, lists:seq(1, number("POOL"))),
    query(First, ["CREATE TABLE items AS SELECT id, 0 AS amount FROM generate_series(1, ",
                  integer_to_list(?ITEMS), ") AS id"]),
    query(First, "ALTER TABLE items ADD PRIMARY KEY (id)"),
    query(First, "VACUUM ANALYZE items"),
    pool(Connections).

query(Connection, Sql) ->
    {ok, Results} = pgsql:squery(Connection, Sql, infinity),
    false = lists:keymember(error, 1, Results).

%% Calls Work once per message, one message at a time.
serve(Work) ->
    receive
        {call, From, Tag} ->
            Work(),
            From ! Tag,
            serve(Work)
    end.

call(Process) ->
    Tag = make_ref(),
    Process ! {call, self(), Tag},
    receive Tag -> ok end.

%% A pool lends each of its members to one process at a time.
pool(Members) -> spawn_link(fun() -> lend(Members, queue:new()) end).

lend([Member | Free], Waiting) ->
    case queue:out(Waiting) of
        {{value, {From, Tag}}, Others} ->
            From ! {Tag, Member},
            lend(Free, Others);
        {empty, _} -> wait([Member | Free], Waiting)
    end;
lend([], Waiting) -> wait([], Waiting).

wait(Free, Waiting) ->
    receive
        {take, From, Tag} -> lend(Free, queue:in({From, Tag}, Waiting));
        {give, Member} -> lend([Member | Free], Waiting)
    end.

with(Pool, Work) ->
    Tag = make_ref(),
    Pool ! {take, self(), Tag},
    receive
        {Tag, Member} ->
            try Work(Member) after Pool ! {give, Member} end
    end.
