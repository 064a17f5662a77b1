// Package apiclient makes clients of a Kubernetes API server, one for each group and
// version. It guarantees that a client knows only the types that it is given: client-go's
// clientset would link the types of all groups into netmaster. It must not know what is
// asked. It is called by cmd/netmaster and the packages mirror, serviceaccount and
// statusreport. Start with New.
package apiclient
