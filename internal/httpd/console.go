package httpd

import (
	"embed"
	"net/http"
	"path"
)

// Static files of the console: one document, modules and a style sheet, which show the data of
// /api/v1/cluster/stream and of the questions. Handlers run on the goroutine of the request.

//go:embed console
var consoleFiles embed.FS

// consoleTypes maps file extensions to content types.
var consoleTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// serveConsole registers the console's paths.
func serveConsole(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		consoleFile(w, "index.html")
	})
	mux.HandleFunc("GET /console/{name}", func(w http.ResponseWriter, req *http.Request) {
		consoleFile(w, req.PathValue("name"))
	})
}

// consoleFile serves a file of the console. Names outside its folder do not exist in embed.FS.
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
