// Package apiserver is netmaster's HTTP interface: the objects under /api/v1, their
// operational views, the runtimes' requests under /plugin, health and metrics. It
// guarantees that a request is parsed to model values and authorized before a handler runs,
// that a refusal is a sentence with its status, that 500 is a logged bug with an id, and
// that answers look like 1.x. It must not decide anything about objects: model validates,
// control decides. It is called by cmd/netmaster. Start with New; route.go says what a
// route declares.
package apiserver
