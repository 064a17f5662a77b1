// Package apiconv converts objects of package api into values of package model, for the
// REST interface and for Kubernetes' objects, whose specs are the same objects. It fills in
// defaults, and refuses what cannot be parsed, with the field's name in the API.
//
// Its results need not be valid as a whole: model.Check checks that. It is pure, and has
// the kinds that both interfaces take. Package apiserver parses the kinds that REST alone
// has.
package apiconv
