module go-h2

go 1.24
