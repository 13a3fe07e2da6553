package page

import (
	"net/url"
	"path"
	"strings"
)

// Normalize returns the normalized form of an absolute http or https URL: scheme "http",
// lower-case host without the default port, no user information or fragment, dot segments
// resolved, and "index.html" added to a path that ends in a slash. ok is false for any other URL,
// and for one longer than MaxURL.
func Normalize(raw string) (normal string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", false
	}
	return normalize(u)
}

// resolve returns the normalized URL of a reference in a page.
func resolve(base *url.URL, ref string) (string, bool) {
	u, err := base.Parse(strings.TrimSpace(ref))
	if err != nil {
		return "", false
	}
	return normalize(u)
}

func normalize(u *url.URL) (string, bool) {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" {
		return "", false
	}
	host := strings.ToLower(u.Host)
	for _, port := range []string{":80", ":443", ":"} {
		host = strings.TrimSuffix(host, port)
	}
	p := path.Clean("/" + u.Path)
	if strings.HasSuffix(u.Path, "/") || u.Path == "" || p == "/" {
		p = strings.TrimSuffix(p, "/") + "/index.html"
	}
	n := url.URL{Scheme: "http", Host: host, Path: p, RawQuery: u.RawQuery}
	s := n.String()
	if len(s) > MaxURL || strings.ContainsFunc(s, unsafe) {
		return "", false
	}
	return s, true
}

// unsafe reports whether r is reserved in row keys as a separator.
func unsafe(r rune) bool { return r <= ' ' || r == 0x7f }

// FileURL returns the URL of the file at the slash-separated path rel, whose first element is the
// host. ok is false if rel does not name a page: it has no valid host, does not end in .html or
// .htm, or the URL is longer than MaxURL.
func FileURL(rel string) (string, bool) {
	host, rest, found := strings.Cut(rel, "/")
	ext := strings.ToLower(path.Ext(rest))
	if !found || host == "" || (ext != ".html" && ext != ".htm") {
		return "", false
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/" + rest}
	if parsed, err := url.Parse(u.String()); err != nil || parsed.Host != host {
		return "", false
	}
	return normalize(&u)
}
