// Package api holds the JSON objects of netmaster's REST interface, as clients of Contiv
// 1.x know them, and a client for it. It guarantees that a value encodes with the field
// names, order and omissions of the recorded 1.x exchanges. The client returns *Error for
// an answer that is not a success, and *UnreachableError when no netmaster answered. It
// must not validate, which the server does, or import anything but the standard library. It
// is called by netmaster, netplugin, netctl and programs outside this repository. Start
// with Client.
package api
