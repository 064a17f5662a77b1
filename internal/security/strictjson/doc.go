// Package strictjson decodes the JSON that clients send to listeners, and checks their
// query parameters. It guarantees that ambiguous input is refused, such as unknown fields
// and parameters, data behind the object and other encodings. The error is model.ErrInvalid
// and names the field. It must not be used for answers of servers, files and rows: a newer
// program may have written them. It is called by netmaster's API server and membership,
// netplugin's agent, observer and runtimes, and the relay. Start with Decode.
package strictjson
