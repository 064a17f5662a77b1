// Package strictjson decodes the JSON that clients send to listeners, and checks their query
// parameters.
//
// It guarantees that input which would mean less or more than its sender thinks is refused:
// unknown fields and parameters, data behind the object, other encodings. A refusal names the field and
// what is expected, and is of kind model.ErrInvalid.
//
// It must not be used for answers of servers, files and rows of the store: a newer program
// may have written those.
package strictjson
