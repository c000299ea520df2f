(* Box office of a theatre on cohttp. The environment variable APP selects the application; see
   system.toml. *)
open Lwt.Infix
open Cohttp_lwt_unix

let setting = Sys.getenv
let number name = int_of_string (setting name)
let next = ref 0

(* Returns the number of the row, of this many rows, that the request uses. *)
let row rows =
  next := !next + 7919;
  !next mod rows

let page () =
  let html = Buffer.create 65536 in
  for i = 0 to 999 do
    Printf.bprintf html "<tr><td>%d<td>seat %d<td>%.2f\n" i (i * 7919 mod 1000) (float_of_int i *. 1.25)
  done;
  assert (Buffer.length html > 0);
  Lwt.return_unit

(* Waits for 20 ms while it holds one of SEATS seats. *)
let reserve () =
  let seats = Lwt_pool.create (number "SEATS") Lwt.return in
  fun () -> Lwt_pool.use seats (fun () -> Lwt_unix.sleep 0.02)

(* Waits for 10 ms while it holds the mutex of one of STAGES stages. *)
let rehearse () =
  let stages = Array.init (number "STAGES") (fun _ -> Lwt_mutex.create ()) in
  fun () -> Lwt_mutex.with_lock stages.(row (Array.length stages)) (fun () -> Lwt_unix.sleep 0.01)

(* Makes a blocking call of 20 ms on a thread of Lwt_preemptive. *)
let print () = Lwt_preemptive.detach Unix.sleepf 0.02

let exec (connection : Postgresql.connection) sql =
  ignore (connection#exec ~expect:[ Postgresql.Command_ok; Postgresql.Tuples_ok ] sql)

let connect () =
  match String.split_on_char ':' (setting "STORE") with
  | [ host; port ] -> new Postgresql.connection ~host ~port ~user:"bars" ~dbname:"bars" ()
  | _ -> failwith "this application needs a store"

(* Calls a function with one of POOL connections to PostgreSQL, on a thread of Lwt_preemptive. *)
let with_connection () =
  let pool = Lwt_pool.create (number "POOL") (Lwt_preemptive.detach connect) in
  fun work -> Lwt_pool.use pool (Lwt_preemptive.detach work)

let report connection = exec connection "SELECT pg_sleep(0.02)"

(* Sells a ticket of one of SHOWS shows in a transaction that takes 10 ms. *)
let sell () =
  let setup = connect () in
  exec setup "CREATE TABLE shows AS SELECT id, 0 AS tickets FROM generate_series(0, 9999) AS id";
  exec setup "ALTER TABLE shows ADD PRIMARY KEY (id)";
  setup#finish;
  let shows = number "SHOWS" in
  let with_connection = with_connection () in
  fun () ->
    let sql = Printf.sprintf "UPDATE shows SET tickets = tickets + 1 WHERE id = %d" (row shows) in
    with_connection (fun connection ->
        exec connection "BEGIN";
        exec connection sql;
        Unix.sleepf 0.01;
        exec connection "COMMIT")

let app = function
  | "hello" -> fun () -> Lwt.return_unit
  | "wait" -> fun () -> Lwt_unix.sleep 0.02
  | "page" -> page
  | "reserve" -> reserve ()
  | "rehearse" -> rehearse ()
  | "print" -> print
  | "report" ->
      let with_connection = with_connection () in
      fun () -> with_connection report
  | "report-on-loop" ->
      let connection = connect () in
      fun () -> report connection; Lwt.return_unit
  | "sell" -> sell ()
  | _ -> failwith "unknown application"

let text = "Hello World"

let keep_open headers =
  Server.respond_string ~headers ~status:`OK ~body:text () >|= fun response -> `Response response

(* Writes the response and stops reading requests, so that cohttp closes the connection. *)
let close socket headers =
  let encoding = Cohttp.Transfer.Fixed (Int64.of_int (String.length text)) in
  let write _ output =
    Lwt_io.write output text >>= fun () ->
    Lwt_io.flush output >|= fun () ->
    Lwt_unix.shutdown socket Unix.SHUTDOWN_RECEIVE
  in
  Lwt.return (`Expert (Cohttp.Response.make ~encoding ~headers (), write))

let main () =
  Lwt_preemptive.init 0 (number "THREADS") prerr_endline;
  let work = app (setting "APP") in
  let connection = setting "CONNECTION" in
  let headers = Cohttp.Header.of_list [ ("Content-Type", "text/plain"); ("Connection", connection) ] in
  let callback (client, _) _ _ =
    work () >>= fun () ->
    match client with
    | Conduit_lwt_unix.TCP { fd; _ } when connection = "close" -> close fd headers
    | _ -> keep_open headers
  in
  Conduit_lwt_unix.init ~src:(setting "HOST") () >>= fun ctx ->
  let mode = `TCP (`Port (number "PORT")) in
  Server.create ~ctx:(Net.init ~ctx ()) ~backlog:1024 ~mode (Server.make_response_action ~callback ())

let () =
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  Lwt_main.run (main ())
