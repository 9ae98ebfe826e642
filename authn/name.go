// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// shortNames maps the object identifiers of attributes to the names that OpenSSL writes
// (crypto/objects).
var shortNames = map[string]string{
	"2.5.4.3":                    "CN",
	"2.5.4.4":                    "SN",
	"2.5.4.5":                    "serialNumber",
	"2.5.4.6":                    "C",
	"2.5.4.7":                    "L",
	"2.5.4.8":                    "ST",
	"2.5.4.9":                    "street",
	"2.5.4.10":                   "O",
	"2.5.4.11":                   "OU",
	"2.5.4.12":                   "title",
	"2.5.4.13":                   "description",
	"2.5.4.15":                   "businessCategory",
	"2.5.4.17":                   "postalCode",
	"2.5.4.41":                   "name",
	"2.5.4.42":                   "GN",
	"2.5.4.43":                   "initials",
	"2.5.4.44":                   "generationQualifier",
	"2.5.4.46":                   "dnQualifier",
	"2.5.4.20":                   "telephoneNumber",
	"2.5.4.65":                   "pseudonym",
	"2.5.4.97":                   "organizationIdentifier",
	"1.2.840.113549.1.9.2":       "unstructuredName",
	"1.2.840.113549.1.9.8":       "unstructuredAddress",
	"1.3.6.1.4.1.311.60.2.1.1":   "jurisdictionL",
	"1.3.6.1.4.1.311.60.2.1.2":   "jurisdictionST",
	"1.3.6.1.4.1.311.60.2.1.3":   "jurisdictionC",
	"0.9.2342.19200300.100.1.1":  "UID",
	"0.9.2342.19200300.100.1.25": "DC",
	"1.2.840.113549.1.9.1":       "emailAddress",
}

// distinguishedName formats a name (RFC 5280, section 4.1.2.4) as in RFC 2253 and as "openssl
// -nameopt RFC2253" does. The parts are in reverse order, and characters beyond ASCII are
// escaped. The standard library's pkix.Name.String sorts the parts and supports fewer
// attributes. distinguishedName returns "" if der is not a name.
func distinguishedName(der []byte) string {
	var name []relativeNameSET
	if rest, err := asn1.Unmarshal(der, &name); err != nil || len(rest) > 0 {
		return ""
	}
	parts := make([]string, 0, len(name))
	for _, rdn := range slices.Backward(name) {
		values := make([]string, 0, len(rdn))
		for _, a := range slices.Backward(rdn) {
			values = append(values, a.String())
		}
		parts = append(parts, strings.Join(values, "+"))
	}
	return strings.Join(parts, ",")
}

// relativeNameSET is a set of attributes. Because of the suffix SET, encoding/asn1 decodes it as
// an ASN.1 SET.
type relativeNameSET []attribute

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

func (a attribute) String() string {
	name, known := shortNames[a.Type.String()]
	var value any
	if _, err := asn1.Unmarshal(a.Value.FullBytes, &value); err == nil && known {
		if text, ok := value.(string); ok {
			return name + "=" + escapeValue(text)
		}
	}
	return a.Type.String() + "=#" + strings.ToUpper(hex.EncodeToString(a.Value.FullBytes))
}

// escapeValue escapes the characters that RFC 2253, section 2.4 lists, and bytes that are not
// visible ASCII.
func escapeValue(text string) string {
	var out strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case strings.IndexByte(`,+"\<>;`, c) >= 0, c == '#' && i == 0, c == ' ' && (i == 0 || i == len(text)-1):
			_, _ = out.WriteString(`\` + string(c))
		case c < ' ' || c >= 0x7f:
			_, _ = fmt.Fprintf(&out, `\%02X`, c)
		default:
			_ = out.WriteByte(c)
		}
	}
	return out.String()
}
