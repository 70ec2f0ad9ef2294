#!/bin/sh
# Make the secrets of docker-compose.secured.yml: a CA, the services' certificates, users, tokens.
#
#   sh assembly/make_secrets.sh [FOLDER] [HOST]     ./secrets, localhost: HOST is the broker's name for its clients
#
# Only the folder keeps others out (mode 0700): its files must be readable in containers, where the user is another one.
# ca.key can sign a certificate for any name: keep it elsewhere. A folder that exists is left as it is.
set -eu
umask 022
folder=${1:-secrets} host=${2:-localhost}
mkdir -m 0700 "$folder"
cd "$folder"

issue() {  # NAME SUBJECT-ALTERNATIVE-NAMES
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
  printf 'subjectAltName=%s\nauthorityKeyIdentifier=keyid\n' "$2" > "$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile "$1.ext" -out "$1.pem"
  rm "$1.csr" "$1.ext"
  chmod 0644 "$1.key"
}
case $host in
  localhost) clients=DNS:localhost,IP:127.0.0.1 ;;
  *[!0-9.]*) clients=DNS:$host ;;
  *) clients=IP:$host ;;
esac
{
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Millrace" \
    -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem
  issue storage-svc DNS:storage-svc
  issue gateway-svc "DNS:gateway-svc,$clients"
  issue admin-api DNS:admin-api
} 2> openssl.log || { cat openssl.log >&2; exit 1; }
rm openssl.log

for user in admin admin-api demo registry spark; do
  password=$(openssl rand -hex 16)
  echo "$user $password" >> users
  case $user in
    admin-api)
      echo "$password" > admin-api.password
      continue ;;
    registry)
      login="org.apache.kafka.common.security.scram.ScramLoginModule required"
      echo "KafkaClient { $login username=\"$user\" password=\"$password\"; };" > registry.jaas
      continue ;;
    spark)
      login="org.apache.kafka.common.security.scram.ScramLoginModule required"
      echo "$login username=\"$user\" password=\"$password\";" > spark.jaas
      continue ;;
    demo) ca=/run/secrets/ca.pem ;;
    admin) ca=ca.pem ;;
  esac
  cat > "$user.properties" << END
security.protocol=SASL_SSL
ssl.ca.location=$ca
sasl.mechanism=SCRAM-SHA-512
sasl.username=$user
sasl.password=$password
END
done
for client in admin:admin demo:write; do
  token=$(openssl rand -hex 32)
  echo "${client%:*} ${client#*:} $token" >> tokens
  echo "$token" > "${client%:*}.token"
done
echo "$folder: ca.pem and $(wc -l < users) users; millrace profile create --client-config uses admin.properties"
