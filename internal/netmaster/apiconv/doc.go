// Package apiconv makes values of package model of objects as package api has them, for
// whoever takes such objects: the REST interface, and Kubernetes' objects, whose specs
// are the same objects. It fills in what a field means that is not given, and refuses
// what cannot be parsed with the name that the field has on the wire.
//
// What it returns need not be valid as a whole: model.Check tells that. It is pure, and
// has the kinds that both take; those that come by REST alone are parsed in apiserver.
package apiconv
