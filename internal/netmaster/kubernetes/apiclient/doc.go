// Package apiclient makes clients of an API server of Kubernetes, one for each group and
// version.
//
// A client knows the types that it is given and no others: client-go's clientset would
// link the types of all groups into netmaster.
package apiclient
