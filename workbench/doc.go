// Package workbench serves package engine over HTTP: the requests of
// docs/api.md, the page that is embedded from web/dist, and metrics for
// Prometheus.
//
// It answers nothing itself but access, files and metrics. Open server.go
// first, then access.go (who may ask), assets.go (the page) and metrics.go.
// web/ is the page's source.
package workbench
