// Package apiconv converts objects of package api into values of package model, for the
// kinds that both REST and Kubernetes' objects have. It fills in defaults. It guarantees
// that a refusal names the field as the API calls it. It must not do I/O, or decide whether
// a value is valid as a whole, which model.Check does. It is called by netmaster's API
// server and by package objects of Kubernetes. Start with Network.
package apiconv
