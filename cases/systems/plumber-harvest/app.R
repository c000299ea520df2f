# A service for farms on Plumber and PostgreSQL. See system.toml for the settings.
suppressPackageStartupMessages(library(plumber))

setting <- function(name) Sys.getenv(name)
number <- function(name) as.integer(setting(name))

# Rows of soil and weather, and the model that predicts the yield of each row.
set.seed(1)
fields <- data.frame(rain = runif(400), heat = runif(400), soil = factor(sample(letters, 400, TRUE)))
fields$yield <- 3 * fields$rain - fields$heat + rnorm(400)
model <- lm(yield ~ rain * heat + soil, fields)
predict_yields <- function() stopifnot(length(predict(model, fields)) == 400)

# Counts the days until a field has had enough warmth, day by day.
count_days <- function() {
  warmth <- 0
  days <- 0
  while (warmth < 100) {
    warmth <- warmth + (days %% 7) / 600
    days <- days + 1
  }
}

# Returns a function that compresses a table.
export <- function(type) {
  table <- charToRaw(paste(seq_len(3000), round(rnorm(3000), 3), collapse = "\n"))
  function() memCompress(table, type)
}

# Returns a function that calls the upstream for a weather forecast.
forecast <- function() {
  connection <- curl::new_handle()
  url <- setting("UPSTREAM")
  function() stopifnot(curl::curl_fetch_memory(url, connection)$status_code == 200)
}

# Returns a function that runs a query.
query <- function(sql) {
  address <- strsplit(setting("STORE"), ":")[[1]]
  driver <- RPostgreSQL::PostgreSQL()
  store <- DBI::dbConnect(driver, host = address[1], port = address[2], user = "bars", dbname = "bars")
  function() DBI::dbGetQuery(store, sql)
}

work <- switch(setting("APP"),
  hello = , page = function() NULL,
  predict = predict_yields,
  `predict-collect` = function() {
    predict_yields()
    gc()
  },
  days = count_days,
  `export-gzip` = export("gzip"),
  `export-xz` = export("xz"),
  forecast = forecast(),
  report = query("SELECT pg_sleep(0.02)::text"),
  `report-quick` = query("SELECT 1")
)
body <- if (setting("APP") == "page") strrep("harvest\n", 12500) else "Hello World"

# Returns whether the limit allows a further request in this tenth of a second.
tenth <- 0
taken <- 0
is_allowed <- function() {
  now <- floor(as.numeric(Sys.time()) * 10)
  if (now != tenth) {
    tenth <<- now
    taken <<- 0
  }
  taken <<- taken + 1
  taken <= number("LIMIT") / 10
}

service <- pr() |>
  pr_set_docs(FALSE) |>
  pr_filter("limit", function(req, res) {
    if (is_allowed()) return(forward())
    res$status <- 429
    list(error = "too many requests")
  }) |>
  pr_get("/", function(req, res) {
    work()
    if (runif(1) * 100 < number("FAILURES")) res$status <- 500
    body
  }, serializer = serializer_text())
if (setting("LOG") == "on") {
  service <- pr_hook(service, "postroute", function(req, res) {
    inputs <- jsonlite::toJSON(fields[1:10, ], digits = 8)
    cat(format(Sys.time()), req$REQUEST_METHOD, res$status, inputs, "\n", file = stderr())
  })
}
pr_run(service, host = setting("HOST"), port = number("PORT"), quiet = TRUE)
