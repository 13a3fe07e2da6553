package httpd

import (
	"embed"
	"net/http"
	"path"
)

// The console: one document with a few modules and a style sheet, as they are written,
// which show what /api/v1/cluster/stream and /api/v1/history tell. Nothing here changes.
// It is called on the goroutine of each request.

//go:embed console
var consoleFiles embed.FS

// consoleTypes are the kinds of files that the console consists of.
var consoleTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// serveConsole adds the console to the paths.
func serveConsole(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		consoleFile(w, "index.html")
	})
	mux.HandleFunc("GET /console/{name}", func(w http.ResponseWriter, req *http.Request) {
		consoleFile(w, req.PathValue("name"))
	})
}

// consoleFile answers with the file. A name that leads elsewhere names none: the files are
// in one folder, and embed.FS knows no other.
func consoleFile(w http.ResponseWriter, name string) {
	kind := consoleTypes[path.Ext(name)]
	body, err := consoleFiles.ReadFile("console/" + name)
	if kind == "" || err != nil {
		text(w, http.StatusNotFound, "404 page not found")
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body)
}
